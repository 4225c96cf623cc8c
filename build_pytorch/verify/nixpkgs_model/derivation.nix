# stdenv.mkDerivation with the semantics of nixpkgs. It returns a real derivation, so that Nix
# refuses values that a builder cannot get. `source` is that from which the caller imports nixpkgs.
{ lib, config, system, source }:
let
  inherit (lib) elem isFunction flatten;
  standIn = import ./builder.nix;

  # Why nixpkgs refuses a package with these attributes, or null (check-meta.nix of nixpkgs).
  refusalOf =
    meta:
    let
      unfree = lib.filter (license: !(license.free or true)) (flatten (meta.license or [ ]));
      supported = meta.platforms or [ system ];
    in
    if unfree != [ ] && !config.allowUnfree then
      "has an unfree license (‘${lib.concatStringsSep ", " (map (it: it.shortName) unfree)}’)"
    else if meta.broken or false && !config.allowBroken then
      "is marked as broken"
    else if !(elem system supported) && !config.allowUnsupportedSystem then
      "is not available on ${system}, only on ${toString supported}"
    else null;

  mkDerivationSimple =
    overrideAttrs: attrs:
    let
      name = attrs.name or "${attrs.pname}-${attrs.version}";
      arguments =
        removeAttrs attrs [ "meta" "passthru" "env" ]
        # An input is represented by its dev output, which holds the headers.
        // lib.genAttrs
          [ "nativeBuildInputs" "buildInputs" "propagatedNativeBuildInputs" "propagatedBuildInputs" ]
          (kind: map lib.getDev (flatten (attrs.${kind} or [ ])))
        // {
          inherit name system;
          inherit (standIn) builder args;
          outputs = attrs.outputs or [ "out" ];
          __ignoreNulls = true;
        };
      # A name in both `env` and the attributes is refused, not merged.
      overlapping = lib.attrNames (builtins.intersectAttrs (attrs.env or { }) arguments);
      env = lib.throwIf (overlapping != [ ]) (
        "The `env` attribute set cannot contain any attributes passed to derivation. "
        + "The following attributes are overlapping: ${toString overlapping}"
      ) (attrs.env or { });
      exported = if attrs.__structuredAttrs or false then { inherit env; } else env;
      reason = refusalOf (attrs.meta or { });
      refusal = "Package ‘${name}’ ${toString reason}, refusing to evaluate.";
      passthru = attrs.passthru or { };
    in
    lib.extendDerivation (reason == null || throw refusal) (
      {
        inherit passthru overrideAttrs;
        meta = { inherit name; broken = false; } // attrs.meta or { } // { available = reason == null; };
        model = { inherit source; }; # not in nixpkgs: a value for facts.nix
      }
      // passthru
    ) (derivation (arguments // exported));

  makeDerivationExtensible =
    rattrs:
    let
      args = rattrs (args // { inherit finalPackage overrideAttrs; });
      finalPackage = mkDerivationSimple overrideAttrs args;
      changed = change: final: let prev = rattrs final; in prev // lib.toExtension change final prev;
      overrideAttrs = change: makeDerivationExtensible (changed change);
    in
    finalPackage;
in
attrs: makeDerivationExtensible (if isFunction attrs then attrs else _: attrs)
