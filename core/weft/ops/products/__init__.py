"""Matrix products, contractions and decompositions."""
