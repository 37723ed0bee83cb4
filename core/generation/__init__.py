"""The loop that draws tokens: requests → sequences → steps → chunks."""
