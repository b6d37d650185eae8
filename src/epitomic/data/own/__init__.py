"""A user's own images: any folder, table or data set of images with labels, and how it is split."""
