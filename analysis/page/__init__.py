"""Parts of pages: words and numbers for readers, plots, the style sheet. Pages are beside their commands."""
