#!/bin/sh
# Renders every kustomization here with made-up secrets, and checks the result against the schemas of Kubernetes, what the
# manifests refer to, and the "restricted" pod security standard. By hand: needs kubectl, Python 3, and PyPI at the first call.
#
#   deploy/kubernetes/validate.sh [KUBERNETES_VERSION…]       1.31 or newer, for the JobSet
set -eu
here=$(cd "$(dirname "$0")" && pwd)
tools=${XDG_CACHE_HOME:-$HOME/.cache}/ata/kubernetes-validate
[ -x "$tools/bin/kubernetes-validate" ] || {
    python3 -m venv "$tools"
    "$tools/bin/pip" install --quiet kubernetes-validate
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp -R "$here" "$work/kubernetes"
cd "$work/kubernetes"
for file in key.pem certificate.pem worker.secret status.secret join-token; do
    echo made-up > "base/credentials/$file"
done
mkdir cifar-100
cat > cifar-100/kustomization.yaml <<'END'
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
namespace: ata
resources: [../base]
components: [../components/cifar-100]
END
for folder in base overlays/gpu overlays/jobset cifar-100 files; do
    kubectl kustomize "$folder" > rendered.yaml
    echo "$folder"
    "$tools/bin/python" "$here/validate.py" rendered.yaml "$@"
done
