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
	"context"

	"github.com/spdx/tools-golang/spdx/v2/common"
	spdx "github.com/spdx/tools-golang/spdx/v2/v2_3"

	"kubernetes-dra/hack/pkg/debian"
	"kubernetes-dra/hack/pkg/image"
)

// proxy executes other programs, all other components do everything themselves.
const proxy = "kube-proxy"

// ProxyBase are files of an image, and the packages that they are from.
type ProxyBase struct {
	Files    []image.File
	Packages []DebianPackage
}

// DebianPackage is one in the bill of materials.
type DebianPackage struct {
	debian.Package
	// PURL is its name for those who look for vulnerabilities, URL where it can
	// always be had.
	PURL, URL string
}

// DebianBase makes the base out of the packages in a lock file.
func DebianBase(lockFile string, source debian.Source) (func(ctx context.Context, arch string) (*ProxyBase, error), error) {
	lock, err := debian.Load(lockFile)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, arch string) (*ProxyBase, error) {
		files, err := lock.Base(ctx, arch, source)
		if err != nil {
			return nil, err
		}
		base := &ProxyBase{Files: files}
		for _, p := range lock.Packages[arch] {
			base.Packages = append(base.Packages, DebianPackage{Package: p, PURL: lock.PURL(p), URL: lock.SnapshotURL(p)})
		}
		return base, nil
	}, nil
}

func (p DebianPackage) spdxPackage() *spdx.Package {
	return &spdx.Package{
		PackageName:             p.Name,
		PackageSPDXIdentifier:   elementID("Package", "debian-"+p.Name+"-"+p.Version),
		PackageVersion:          p.Version,
		PackageSupplier:         &common.Supplier{SupplierType: "Organization", Supplier: "Debian"},
		PackageDownloadLocation: p.URL,
		PackageChecksums:        []common.Checksum{{Algorithm: common.SHA256, Value: p.SHA256}},
		// The image has them in /usr/share/doc.
		PackageLicenseConcluded: unknown,
		PackageLicenseDeclared:  unknown,
		PackageCopyrightText:    unknown,
		PackageExternalReferences: []*spdx.PackageExternalReference{{
			Category: common.CategoryPackageManager,
			RefType:  common.TypePackageManagerPURL,
			Locator:  p.PURL,
		}},
	}
}
