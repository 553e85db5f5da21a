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

package dynamicresources

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
)

const (
	// The client for owners has limits of its own: whoever causes many lookups
	// slows down nothing else.
	ownerClientQPS   = 50
	ownerClientBurst = 100

	// discoveryInterval is the minimum time between requests for the same part of
	// the discovery information, discoveryTTL the maximum time that it is used.
	discoveryInterval = 10 * time.Second
	discoveryTTL      = 10 * time.Minute
)

// builtinOwners are kinds for which nothing needs to be discovered.
var builtinOwners = map[schema.GroupKind]schema.GroupVersionResource{
	{Group: "apps", Kind: "DaemonSet"}:   {Group: "apps", Version: "v1", Resource: "daemonsets"},
	{Group: "apps", Kind: "Deployment"}:  {Group: "apps", Version: "v1", Resource: "deployments"},
	{Group: "apps", Kind: "ReplicaSet"}:  {Group: "apps", Version: "v1", Resource: "replicasets"},
	{Group: "apps", Kind: "StatefulSet"}: {Group: "apps", Version: "v1", Resource: "statefulsets"},
	{Group: "batch", Kind: "CronJob"}:    {Group: "batch", Version: "v1", Resource: "cronjobs"},
	{Group: "batch", Kind: "Job"}:        {Group: "batch", Version: "v1", Resource: "jobs"},
}

// metadataOwnerReader gets the metadata of owners of any kind from the API server. What it
// remembers about kinds is limited by what the API server serves, whatever
// is asked for.
type metadataOwnerReader struct {
	metadata  metadata.Interface
	discovery discovery.ServerResourcesInterface
	groups    discovery.ServerGroupsInterface

	// mutex protects all of the following fields.
	mutex         sync.Mutex
	versions      map[string][]string
	versionsSince time.Time
	kinds         map[schema.GroupVersion]*servedKinds
}

// servedKinds has the resources of one version of an API group.
type servedKinds struct {
	since time.Time

	// resources maps from the name of a kind. It is empty for kinds which are
	// not in a namespace.
	resources map[string]string
}

func newMetadataOwnerReader(config *restclient.Config) (*metadataOwnerReader, error) {
	config = restclient.AddUserAgent(restclient.CopyConfig(config), "owners-of-pods")
	config.Timeout = ownerLookupTimeout
	config.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(ownerClientQPS, ownerClientBurst)
	metadataClient, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("create client for the owners of pods: %w", err)
	}
	discoveryClient, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("create discovery client for the owners of pods: %w", err)
	}
	return &metadataOwnerReader{metadata: metadataClient, discovery: discoveryClient, groups: discoveryClient}, nil
}

func (r *metadataOwnerReader) get(ctx context.Context, namespace string, gvk schema.GroupVersionKind, name string) (metav1.Object, error) {
	gvr, ok := builtinOwners[gvk.GroupKind()]
	if !ok {
		var err error
		gvr, err = r.resourceFor(gvk)
		if err != nil {
			return nil, err
		}
		if gvr.Empty() {
			return nil, nil
		}
	}
	obj, err := r.metadata.Resource(gvr).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return obj, nil
}

// resourceFor returns the resource for a kind, an empty one if the API server has no such
// kind of objects in namespaces. The version in an owner reference might
// not be served anymore, or not yet.
func (r *metadataOwnerReader) resourceFor(gvk schema.GroupVersionKind) (schema.GroupVersionResource, error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	versions, err := r.versionsOf(gvk.Group)
	if err != nil {
		return schema.GroupVersionResource{}, err
	}
	if slices.Contains(versions, gvk.Version) {
		versions = append([]string{gvk.Version}, versions...)
	}
	for _, version := range versions {
		gv := schema.GroupVersion{Group: gvk.Group, Version: version}
		resource, found, err := r.resourceIn(gv, gvk.Kind)
		switch {
		case err != nil:
			return schema.GroupVersionResource{}, err
		case found && resource == "":
			return schema.GroupVersionResource{}, nil
		case found:
			return gv.WithResource(resource), nil
		}
	}
	return schema.GroupVersionResource{}, nil
}

// versionsOf returns the versions of an API group, the preferred one first.
func (r *metadataOwnerReader) versionsOf(group string) ([]string, error) {
	age := time.Since(r.versionsSince)
	versions, found := r.versions[group]
	if found && age < discoveryTTL || r.versions != nil && age < discoveryInterval {
		return versions, nil
	}
	list, err := r.groups.ServerGroups()
	if err != nil {
		return nil, fmt.Errorf("discover API groups: %w", err)
	}
	r.versionsSince = time.Now()
	r.versions = make(map[string][]string, len(list.Groups))
	for _, g := range list.Groups {
		names := make([]string, 0, len(g.Versions))
		for _, version := range g.Versions {
			if version.Version == g.PreferredVersion.Version {
				names = slices.Insert(names, 0, version.Version)
			} else {
				names = append(names, version.Version)
			}
		}
		r.versions[g.Name] = names
	}
	return r.versions[group], nil
}

// resourceIn returns the name of the resource for a kind, empty if it is not in a namespace.
func (r *metadataOwnerReader) resourceIn(gv schema.GroupVersion, kind string) (resource string, found bool, err error) {
	if served := r.kinds[gv]; served != nil {
		age := time.Since(served.since)
		resource, found := served.resources[kind]
		if found && age < discoveryTTL || age < discoveryInterval {
			return resource, found, nil
		}
	}
	list, err := r.discovery.ServerResourcesForGroupVersion(gv.String())
	if err != nil && !apierrors.IsNotFound(err) {
		return "", false, fmt.Errorf("discover resources of %s: %w", gv, err)
	}
	served := &servedKinds{since: time.Now(), resources: make(map[string]string)}
	if list != nil {
		for _, res := range list.APIResources {
			if strings.Contains(res.Name, "/") || served.resources[res.Kind] != "" {
				continue
			}
			served.resources[res.Kind] = ""
			if res.Namespaced {
				served.resources[res.Kind] = res.Name
			}
		}
	}
	if r.kinds == nil {
		r.kinds = make(map[schema.GroupVersion]*servedKinds)
	}
	r.kinds[gv] = served
	resource, found = served.resources[kind]
	return resource, found, nil
}
