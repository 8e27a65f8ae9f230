"""Build the documentation site: guides, navigation, and a reference from the code, with MkDocs (`make docs`)."""
