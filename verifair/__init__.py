"""verifair"""
