// kernel_prelude.h has what is needed of this.
