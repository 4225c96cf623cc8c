# nixpkgs' torch as the model has it (model-torch.nix), with what PyTorch 2.6.0 and Debian's packages
# of it need: the texts that later expressions replace are not in these sources, and libraries that
# nixpkgs builds from PyTorch's submodules are Debian's. The formals stay those of nixpkgs.
pin:
let
  torch = import ./model-torch.nix pin;
in
{
  __functionArgs = builtins.functionArgs torch;
  __functor = _: arguments:
    let
      inherit (arguments) blas config cudaPackages lib python;
      isMkl = blas.implementation == "mkl";
      isCuda = arguments.cudaSupport or config.cudaSupport;
      off = names: lib.genAttrs names (_: "0");
      on = names: lib.genAttrs names (_: "1");
    in
    (torch arguments).overrideAttrs (old: {
      postPatch = ''
        sed -i -e "/from __future__ import/d" **.py
      ''
      # CMake asks how a BLAS returns complex numbers only where it looks for any BLAS, as in nixpkgs
      + lib.optionalString (!isMkl) ''
        sed -i "s/^#if AT_BLAS_USE_CBLAS_DOT()/#if 1/" aten/src/ATen/native/BlasKernel.cpp
      ''
      # Debian forces an NVTX that CUDA 13 has no more, and has no CUTLASS in its sources. PyTorch
      # 2.6.0 is older than CUDA 13. Gloo and TensorPipe of Debian are without CUDA.
      + lib.optionalString isCuda ''
        rm cmake/Modules/FindCUDAToolkit.cmake
        patch -R -p1 <debian/patches/2300-torch-cuda-no-use-nvtx3.patch
        patch -p1 <${builtins.path { path = ./cuda13.patch; }}
        mkdir third_party/cutlass
        ln -s /opt/cutlass/include /opt/cutlass/tools third_party/cutlass
      '';
      USE_MPI = "0"; # which nixpkgs passes beside `env`
      env = old.env
        // on [ "USE_SYSTEM_LIBS" "USE_DISTRIBUTED" "USE_GLOO" "USE_TENSORPIPE" "USE_KINETO" "USE_XNNPACK" ]
        # Not in Debian's sources (FBGEMM, NNPACK, ITT), or of other machines
        // off [ "BUILD_TEST" "USE_FBGEMM" "USE_NNPACK" "USE_ITT" "USE_ROCM" "USE_LLVM" ]
        // {
          NIX_CFLAGS_COMPILE = old.env.NIX_CFLAGS_COMPILE + " -I/usr";
          ONNX_NAMESPACE = "onnx";
          BLAS = if isMkl then "MKL" else "OpenBLAS";
        }
        // (if !isMkl then { OpenBLAS_HOME = blas.provider; } else {
          CMAKE_PREFIX_PATH = blas.provider;
          INTEL_MKL_DIR = blas.provider;
          LDFLAGS = "-Wl,-rpath,${blas.provider}/lib"; # as the linker's wrapper of nixpkgs
          MKLROOT = blas.provider;
          MKL_THREADING = "OMP";
        })
        # No MAGMA for CUDA 13 can be had without nixpkgs
        // lib.optionalAttrs isCuda (off [ "USE_MAGMA" ]);

      # The outputs of nixpkgs
      postInstall = ''
        site=$out/lib/python3.13/site-packages/torch
        mkdir "$dev" "$lib" "$cxxdev"
        cp -r "$site/include" "$dev/include"
        mv "$site/share" "$dev/share"
        mv "$site/lib" "$lib/lib"
        ln -s "$lib/lib" "$site/lib"
        # As patchShebangs: so the closure has the Python
        [ ! -d "$out/bin" ] || sed -i "1s|^#!.*|#!${python.interpreter}|" "$out"/bin/*
      '';
    });
}
