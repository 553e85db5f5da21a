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
	"crypto/sha1"
	"encoding/hex"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx/v2/common"
	spdx "github.com/spdx/tools-golang/spdx/v2/v2_3"

	"kubernetes-dra/hack/pkg/binaries"
)

// unknown is SPDX for what nobody looked into.
const unknown = "NOASSERTION"

// bill is the bill of materials of a tarball, in the format SPDX 2.3: its
// files, the modules in the binaries, the packages in kube-proxy's image, and the
// modules of the tree at another version. The files must have their sums.
func (c *contents) bill(tarball, sum string, modules []*module, packages []BasePackage, standIns []StandIn, build binaries.Options) ([]byte, error) {
	release := &spdx.Package{
		PackageName:               tarball,
		PackageSPDXIdentifier:     "Package-release",
		PackageVersion:            build.Version,
		PackageFileName:           tarball,
		PackageDownloadLocation:   unknown,
		FilesAnalyzed:             true,
		IsFilesAnalyzedTagPresent: true,
		PackageVerificationCode:   &common.PackageVerificationCode{Value: c.verificationCode()},
		PackageChecksums:          []common.Checksum{{Algorithm: common.SHA512, Value: sum}},
		PackageSourceInfo:         "git tree at commit " + build.Commit + ", built with " + runtime.Version(),
		PackageLicenseConcluded:   unknown,
		PackageLicenseDeclared:    "Apache-2.0",
		PackageCopyrightText:      unknown,
	}
	doc := &spdx.Document{
		SPDXVersion:    spdx.Version,
		DataLicense:    spdx.DataLicense,
		SPDXIdentifier: "DOCUMENT",
		DocumentName:   tarball,
		// It has to be one that no other document has. It is a name only.
		DocumentNamespace: "https://spdx.org/spdxdocs/" + tarball + "-" + build.Version + "-" + sum[:32],
		CreationInfo: &spdx.CreationInfo{
			Creators: []common.Creator{{CreatorType: "Tool", Creator: "kubernetes-dra-carry-release"}},
			Created:  build.Date.UTC().Format(time.RFC3339),
		},
		Packages: []*spdx.Package{release},
	}
	relate := func(a common.ElementID, kind string, b common.ElementID) {
		doc.Relationships = append(doc.Relationships, &spdx.Relationship{
			RefA: common.DocElementID{ElementRefID: a}, Relationship: kind, RefB: common.DocElementID{ElementRefID: b},
		})
	}
	relate(doc.SPDXIdentifier, common.TypeRelationshipDescribe, release.PackageSPDXIdentifier)

	for _, name := range c.names() {
		file := c.spdxFile(name)
		doc.Files = append(doc.Files, file)
		relate(release.PackageSPDXIdentifier, common.TypeRelationshipContains, file.FileSPDXIdentifier)
	}
	for _, m := range modules {
		pkg := m.spdxPackage()
		doc.Packages = append(doc.Packages, pkg)
		for _, user := range m.users {
			relate(pkg.PackageSPDXIdentifier, common.TypeRelationshipStaticLink, fileID(binaryPath(user)))
		}
	}
	for _, p := range packages {
		pkg := p.spdxPackage()
		doc.Packages = append(doc.Packages, pkg)
		relate(fileID(binaryPath(proxy)+".tar"), common.TypeRelationshipContains, pkg.PackageSPDXIdentifier)
	}
	for _, s := range standIns {
		pkg := s.spdxPackage()
		doc.Packages = append(doc.Packages, pkg)
		relate(release.PackageSPDXIdentifier, common.TypeRelationshipGeneratedFrom, pkg.PackageSPDXIdentifier)
	}
	var out bytes.Buffer
	if err := spdxjson.Write(doc, &out, spdxjson.Indent("  "), spdxjson.EscapeHTML(false)); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

func (c *contents) spdxFile(name string) *spdx.File {
	e := c.files[name]
	kind := "TEXT"
	switch {
	case e.executable:
		kind = "BINARY"
	case strings.HasSuffix(name, ".tar"):
		kind = "ARCHIVE"
	}
	return &spdx.File{
		FileName:           "./" + name,
		FileSPDXIdentifier: fileID(name),
		FileTypes:          []string{kind},
		Checksums:          []common.Checksum{{Algorithm: common.SHA1, Value: e.sha1}, {Algorithm: common.SHA512, Value: e.sha512}},
		LicenseConcluded:   unknown,
		LicenseInfoInFiles: []string{unknown},
		FileCopyrightText:  unknown,
	}
}

// verificationCode is the sum of all files, as SPDX 2.3 has it in section 7.9.
func (c *contents) verificationCode() string {
	var sums []string
	for _, e := range c.files {
		sums = append(sums, e.sha1)
	}
	slices.Sort(sums)
	sum := sha1.Sum([]byte(strings.Join(sums, "")))
	return hex.EncodeToString(sum[:])
}

func (m *module) spdxPackage() *spdx.Package {
	return &spdx.Package{
		PackageName:             m.path,
		PackageSPDXIdentifier:   elementID("Package", m.path+"-"+m.version),
		PackageVersion:          m.version,
		PackageDownloadLocation: unknown,
		// The one in go.sum is a SHA-256 of the names and sums of the module's files.
		PackageComment:          "go.sum: " + m.sum,
		PackageLicenseConcluded: unknown,
		PackageLicenseDeclared:  unknown,
		PackageCopyrightText:    unknown,
		PackageExternalReferences: []*spdx.PackageExternalReference{{
			Category: common.CategoryPackageManager,
			RefType:  common.TypePackageManagerPURL,
			Locator:  "pkg:golang/" + m.path + "@" + m.version,
		}},
	}
}

func (s StandIn) spdxPackage() *spdx.Package {
	m := module{path: s.Module, version: s.Version, sum: s.Sum}
	pkg := m.spdxPackage()
	pkg.PackageComment += ". It stands in for " + s.For + ": " + s.Why
	return pkg
}

func fileID(name string) common.ElementID { return elementID("File", name) }

var notInID = regexp.MustCompile(`[^A-Za-z0-9.-]`)

// elementID is a name with letters that SPDX has in identifiers. The sum makes
// it one that no other name has.
func elementID(kind, name string) common.ElementID {
	sum := sha1.Sum([]byte(name))
	return common.ElementID(kind + "-" + notInID.ReplaceAllString(name, "-") + "-" + hex.EncodeToString(sum[:4]))
}
