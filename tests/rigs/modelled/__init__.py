"""The whole interface against a plain model, while workers, the service and commands are killed and clocks jump."""
