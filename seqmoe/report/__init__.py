"""Records become what people look at: tables, one module per figure, and a page that stands alone."""
