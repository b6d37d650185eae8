"""A page in the browser to try a network on: draw a digit or drop an image (`epitomic play`)."""
