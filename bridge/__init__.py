"""From a budget to a configuration, and from runs to a verdict. Commands by name."""
