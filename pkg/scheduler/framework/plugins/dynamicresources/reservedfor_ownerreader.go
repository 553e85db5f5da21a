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

	// versions has the versions of each API group, the preferred one first.
	versions discovered[[]string]

	// mutex protects kinds, but not what is in there. It is never held during a request.
	mutex sync.Mutex

	// kinds has the resources of each version of an API group. The keys are the names of
	// kinds. The resource is empty for kinds which are not in a namespace.
	kinds map[schema.GroupVersion]*discovered[string]
}

// discovered is one part of the discovery information.
type discovered[T any] struct {
	// mutex is held during a request. Only those wait for an API which does not
	// answer that need this part.
	mutex sync.Mutex

	// asked is the time of the last request, err its result.
	asked time.Time
	err   error

	// known is from the last request that succeeded.
	known map[string]T
}

// get returns what is known about a name. If nothing is, then there is a request once in a
// while. One that fails does not change what is known.
func (d *discovered[T]) get(name string, ask func() (map[string]T, error)) (value T, found bool, err error) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	_, found = d.known[name]
	if age := time.Since(d.asked); age >= discoveryTTL || !found && age >= discoveryInterval {
		known, err := ask()
		d.asked, d.err = time.Now(), err
		if err == nil {
			d.known = known
		}
	}
	if value, found = d.known[name]; found {
		return value, true, nil
	}
	return value, false, d.err
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
	versions, _, err := r.versions.get(gvk.Group, r.discoverVersions)
	if err != nil {
		return schema.GroupVersionResource{}, err
	}
	if slices.Contains(versions, gvk.Version) {
		versions = append([]string{gvk.Version}, versions...)
	}
	for _, version := range versions {
		gv := schema.GroupVersion{Group: gvk.Group, Version: version}
		resource, found, err := r.kindsOf(gv).get(gvk.Kind, func() (map[string]string, error) { return r.discoverKinds(gv) })
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

// discoverVersions asks for the versions of all API groups.
func (r *metadataOwnerReader) discoverVersions() (map[string][]string, error) {
	list, err := r.groups.ServerGroups()
	if err != nil {
		return nil, fmt.Errorf("discover API groups: %w", err)
	}
	versions := make(map[string][]string, len(list.Groups))
	for _, g := range list.Groups {
		names := make([]string, 0, len(g.Versions))
		for _, version := range g.Versions {
			if version.Version == g.PreferredVersion.Version {
				names = slices.Insert(names, 0, version.Version)
			} else {
				names = append(names, version.Version)
			}
		}
		versions[g.Name] = names
	}
	return versions, nil
}

// kindsOf returns what is known about one version of an API group, perhaps nothing yet.
func (r *metadataOwnerReader) kindsOf(gv schema.GroupVersion) *discovered[string] {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.kinds == nil {
		r.kinds = make(map[schema.GroupVersion]*discovered[string])
	}
	if r.kinds[gv] == nil {
		r.kinds[gv] = &discovered[string]{}
	}
	return r.kinds[gv]
}

// discoverKinds asks for the resources of one version of an API group.
func (r *metadataOwnerReader) discoverKinds(gv schema.GroupVersion) (map[string]string, error) {
	list, err := r.discovery.ServerResourcesForGroupVersion(gv.String())
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("discover resources of %s: %w", gv, err)
	}
	resources := make(map[string]string)
	if list == nil {
		return resources, nil
	}
	for _, res := range list.APIResources {
		if strings.Contains(res.Name, "/") || resources[res.Kind] != "" {
			continue
		}
		resources[res.Kind] = ""
		if res.Namespaced {
			resources[res.Kind] = res.Name
		}
	}
	return resources, nil
}
