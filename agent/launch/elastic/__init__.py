"""The launcher of elastic runs: ranks that are left form anew where one is lost, and further ones join them."""
