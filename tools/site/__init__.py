"""The documentation as a site: guides, navigation, and a reference from the code, built by MkDocs (`make docs`)."""
