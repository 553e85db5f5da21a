/*
Copyright The Kubernetes Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package release

import (
	"bytes"
	"context"
	"encoding/pem"
	"fmt"
	"net/url"
	"path"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"golang.org/x/crypto/x509roots/fallback/bundle"

	"kubernetes-dra/hack/pkg/dist/debian"
	"kubernetes-dra/hack/pkg/dist/image"
)

// ProxyLock is the lock file of kube-proxy's image, in the repository.
const ProxyLock = "hack/images/kube-proxy.lock"

// ProxyBase is what is below kube-proxy in its image, and what that consists of.
type ProxyBase struct {
	Image    v1.Image
	Packages []BasePackage
}

// BasePackage is a package, or an image, in the bill of materials.
type BasePackage struct {
	Name, Version, SHA256 string
	// Supplier is the organization that it is from, if that is known.
	Supplier string
	// PURL is its name for those who look for vulnerabilities.
	PURL string
}

// DebianBase makes the base out of the packages in a lock file.
func DebianBase(lockFile string, apt debian.Apt) (func(ctx context.Context, arch string) (*ProxyBase, error), error) {
	lock, err := debian.Load(lockFile)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, arch string) (*ProxyBase, error) {
		content, err := lock.Base(ctx, arch, apt)
		if err != nil {
			return nil, err
		}
		base := &ProxyBase{}
		if base.Image, err = image.FromTar(content); err != nil {
			return nil, err
		}
		for _, p := range lock.Packages[arch] {
			version := strings.ReplaceAll(url.QueryEscape(p.Version), "%3A", ":") // A colon stays.
			purl := fmt.Sprintf("pkg:deb/debian/%s@%s?arch=%s&distro=%s", url.QueryEscape(p.Name), version, p.Architecture, lock.Suite)
			base.Packages = append(base.Packages, BasePackage{Name: p.Name, Version: p.Version, SHA256: p.SHA256, Supplier: "Debian", PURL: purl})
		}
		return base, nil
	}, nil
}

// RegistryBase takes an image of a registry for the base. Its reference must have a
// digest, so that it is always the same one.
func RegistryBase(reference string) (func(ctx context.Context, arch string) (*ProxyBase, error), error) {
	digest, err := name.NewDigest(reference)
	if err != nil {
		return nil, fmt.Errorf("a base must be pinned, like name@sha256:...: %w", err)
	}
	return func(ctx context.Context, arch string) (*ProxyBase, error) {
		img, err := remote.Image(digest, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain),
			remote.WithPlatform(v1.Platform{OS: "linux", Architecture: arch}))
		if err != nil {
			return nil, err
		}
		config, err := img.ConfigFile()
		if err != nil {
			return nil, err
		}
		if config.Architecture != arch {
			return nil, fmt.Errorf("%s is for %s: give the digest of an image for all architectures, or make a release for this one alone", reference, config.Architecture)
		}
		sum := digest.DigestStr()
		repository := digest.Context().Name()
		return &ProxyBase{Image: img, Packages: []BasePackage{{
			Name: repository, Version: sum, SHA256: strings.TrimPrefix(sum, "sha256:"),
			PURL: fmt.Sprintf("pkg:oci/%s@%s?arch=%s&repository_url=%s", path.Base(repository), url.QueryEscape(sum), arch, url.QueryEscape(repository)),
		}}}, nil
	}, nil
}

// authorities are the certificates of the authorities that Mozilla trusts. Those
// that it trusts for some certificates only are left out: a file cannot say so.
func authorities() []byte {
	var out bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			// A buffer takes everything.
			_ = pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate})
		}
	}
	return out.Bytes()
}
