"""Will a draft and a target work together, and will it pay: findings from their files alone."""
