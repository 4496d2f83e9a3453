"""The campaign of honest runs: many architectures, many runtimes, and nobody may be accused."""
