mark_tied(self, is_copy={copy})
