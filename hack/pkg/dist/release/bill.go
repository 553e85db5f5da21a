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
	"cmp"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx/v2/common"
	spdx "github.com/spdx/tools-golang/spdx/v2/v2_3"

	"kubernetes-dra/hack/pkg/dist/binaries"
)

// unknown is SPDX for what nobody looked into.
const unknown = "NOASSERTION"

// bill is the bill of materials of an archive, in the format SPDX 2.3: its
// files, the modules in the binaries, and in the server tarball the packages in kube-proxy's image and
// the modules of the tree at another version.
type bill struct {
	// name and sum are those of the archive, root has its files, and bin is where there are binaries in it.
	name, sum, root, bin string
	// source is what the binaries were built from.
	source   string
	build    binaries.Options
	modules  []*module
	packages []BasePackage
	standIns []StandIn
}

// write writes it beside the archive, in dir.
func (b *bill) write(dir string) error {
	release := newPackage("release", b.name, b.build.Version, "", common.Checksum{Algorithm: common.SHA512, Value: b.sum})
	release.PackageSPDXIdentifier, release.PackageFileName, release.PackageLicenseDeclared = "Package-release", b.name, "Apache-2.0"
	release.PackageSourceInfo = b.source + ", built with " + runtime.Version()
	release.FilesAnalyzed, release.IsFilesAnalyzedTagPresent = true, true
	doc := &spdx.Document{
		SPDXVersion:    spdx.Version,
		DataLicense:    spdx.DataLicense,
		SPDXIdentifier: "DOCUMENT",
		DocumentName:   b.name,
		// It has to be one that no other document has. It is a name only.
		DocumentNamespace: "https://spdx.org/spdxdocs/" + b.name + "-" + b.build.Version + "-" + b.sum[:32],
		CreationInfo: &spdx.CreationInfo{
			Creators: []common.Creator{{CreatorType: "Tool", Creator: "kubernetes-dra-carry-release"}},
			Created:  b.build.Date.UTC().Format(time.RFC3339),
		},
	}
	relate := func(a common.ElementID, kind string, b common.ElementID) {
		doc.Relationships = append(doc.Relationships, &spdx.Relationship{
			RefA: common.DocElementID{ElementRefID: a}, Relationship: kind, RefB: common.DocElementID{ElementRefID: b},
		})
	}
	add := func(pkg *spdx.Package) common.ElementID {
		doc.Packages = append(doc.Packages, pkg)
		return pkg.PackageSPDXIdentifier
	}
	relate(doc.SPDXIdentifier, common.TypeRelationshipDescribe, add(release))
	var sums []string
	err := filepath.WalkDir(b.root, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, _ := filepath.Rel(b.root, file)
		info, statErr := os.Stat(file)
		short, long, err := sumsOf(file)
		if err := errors.Join(statErr, err); err != nil {
			return err
		}
		sums = append(sums, short)
		doc.Files = append(doc.Files, newFile(name, info.Mode()&0o100 != 0, short, long))
		relate(release.PackageSPDXIdentifier, common.TypeRelationshipContains, fileID(name))
		return nil
	})
	if err != nil {
		return err
	}
	// As SPDX 2.3 has it in section 7.9.
	slices.Sort(sums)
	sum := sha1.Sum([]byte(strings.Join(sums, "")))
	release.PackageVerificationCode = &common.PackageVerificationCode{Value: hex.EncodeToString(sum[:])}

	newModule := func(path, version, sum, more string) common.ElementID {
		pkg := newPackage(path+"-"+version, path, version, "pkg:golang/"+path+"@"+version)
		// The one in go.sum is a SHA-256 of the names and sums of the module's files.
		pkg.PackageComment = "go.sum: " + sum + more
		return add(pkg)
	}
	for _, m := range b.modules {
		id := newModule(m.path, m.version, m.sum, "")
		for _, user := range m.users {
			relate(id, common.TypeRelationshipStaticLink, fileID(b.bin+user))
		}
	}
	for _, p := range b.packages {
		pkg := newPackage("proxy-base-"+p.Name+"-"+p.Version, p.Name, p.Version, p.PURL, common.Checksum{Algorithm: common.SHA256, Value: p.SHA256})
		if p.Supplier != "" {
			pkg.PackageSupplier = &common.Supplier{SupplierType: "Organization", Supplier: p.Supplier}
		}
		relate(fileID(binDir+proxy+".tar"), common.TypeRelationshipContains, add(pkg))
	}
	for _, s := range b.standIns {
		id := newModule(s.Module, s.Version, s.Sum, ". It stands in for "+s.For+": "+s.Why)
		relate(release.PackageSPDXIdentifier, common.TypeRelationshipGeneratedFrom, id)
	}
	var out bytes.Buffer
	if err := spdxjson.Write(doc, &out, spdxjson.Indent("  "), spdxjson.EscapeHTML(false)); err != nil {
		return err
	}
	name := strings.TrimSuffix(strings.TrimSuffix(b.name, ".gz"), ".tar") + ".spdx.json"
	return os.WriteFile(filepath.Join(dir, name), out.Bytes(), 0o644)
}

// newPackage is one about whose licences nobody says anything here: those of modules are in
// the tarball, those of Debian in /usr/share/doc of the image.
func newPackage(id, name, version, purl string, sums ...common.Checksum) *spdx.Package {
	pkg := &spdx.Package{
		PackageName: name, PackageSPDXIdentifier: elementID("Package", id), PackageVersion: version, PackageChecksums: sums,
		PackageDownloadLocation: unknown, PackageLicenseConcluded: unknown, PackageLicenseDeclared: unknown, PackageCopyrightText: unknown,
	}
	if purl != "" {
		pkg.PackageExternalReferences = []*spdx.PackageExternalReference{{Category: common.CategoryPackageManager, RefType: common.TypePackageManagerPURL, Locator: purl}}
	}
	return pkg
}

func newFile(name string, program bool, short, long string) *spdx.File {
	kinds := map[bool]string{program: "BINARY", strings.HasSuffix(name, ".tar"): "ARCHIVE"}
	return &spdx.File{
		FileName: "./" + name, FileSPDXIdentifier: fileID(name), FileTypes: []string{cmp.Or(kinds[true], "TEXT")},
		Checksums:        []common.Checksum{{Algorithm: common.SHA1, Value: short}, {Algorithm: common.SHA512, Value: long}},
		LicenseConcluded: unknown, LicenseInfoInFiles: []string{unknown}, FileCopyrightText: unknown,
	}
}

func fileID(name string) common.ElementID { return elementID("File", name) }

var notInID = regexp.MustCompile(`[^A-Za-z0-9.-]`)

// elementID is a name with letters that SPDX has in identifiers. The sum makes
// it one that no other name has.
func elementID(kind, name string) common.ElementID {
	sum := sha1.Sum([]byte(name))
	return common.ElementID(kind + "-" + notInID.ReplaceAllString(name, "-") + "-" + hex.EncodeToString(sum[:4]))
}
