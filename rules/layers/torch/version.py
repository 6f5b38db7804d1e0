__version__ = "2.15.0"
cuda = None
hip = None
git_version = ""
