"""Images to train and test on: small sets in memory (`small`) and photographs read from disk (`photographs`)."""
