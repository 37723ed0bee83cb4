"""What the samplers `grammar`, `json_schema` and `regex` are made of: constrained output through llguidance."""
