"""The theme `annotate`: templates, stylesheet and scripts of the site."""
