"""What training loops need besides collectives."""
