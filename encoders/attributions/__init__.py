"""Which inputs a decision is due to: integrated gradients of networks, Shapley values of trees."""
