"""The operator half: a HiSparseDeployment becomes pods with the right memory sizes, and shows what is resident where.

May use hisparse_runtime.geometry and hisparse_runtime.capacity; never the engine, its kernels or torch.
"""
