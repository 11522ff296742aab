"""Who answers with more or less knowledge of a world: theories, fits, the reference ladder."""
