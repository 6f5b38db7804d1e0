"""A library in the shape of the users': models made of styles, which registries look up."""
