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
      inherit (arguments) blas lib python;
      isMkl = blas.implementation == "mkl";
      off = names: lib.genAttrs names (_: "0");
      on = names: lib.genAttrs names (_: "1");
    in
    (torch arguments).overrideAttrs (old: {
      postPatch = ''
        sed -i -e "/from __future__ import/d" **.py
      '';
      env = old.env
        // on [ "USE_SYSTEM_LIBS" "USE_DISTRIBUTED" "USE_GLOO" "USE_TENSORPIPE" "USE_KINETO" "USE_XNNPACK" ]
        # Not in Debian's sources (FBGEMM, NNPACK, ITT), or of other machines
        // off [ "BUILD_TEST" "USE_FBGEMM" "USE_NNPACK" "USE_ITT" "USE_MPI" "USE_ROCM" "USE_LLVM" ]
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
        });

      # The outputs of nixpkgs
      postInstall = ''
        site=$out/lib/${python.libPrefix}/site-packages/torch
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
