"""What pages are made of: words and numbers as a reader wants them, forms of HTML, plots, the style sheet.

Must not know what is said with them: the pages themselves stand in the rooms of their commands.
"""
