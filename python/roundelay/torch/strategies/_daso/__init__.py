"""What strategy daso alone needs: tensors on their way between the nodes, and how often they go."""
