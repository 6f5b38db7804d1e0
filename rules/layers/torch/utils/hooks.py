class RemovableHandle:
    def remove(self):
        return None
