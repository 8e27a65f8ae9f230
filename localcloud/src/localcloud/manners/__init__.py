"""What a real account does and a bare simulation never does: it throttles, lags, boots slowly and runs out of room."""
