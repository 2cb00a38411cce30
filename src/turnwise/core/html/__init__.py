"""Pages that ask nothing of the network: elements, and what every page is made of."""
