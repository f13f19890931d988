"""What the tests share: `job` starts processes, `worker` is for use inside them."""
