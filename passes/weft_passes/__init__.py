"""The passes that come with weft, one a module."""
