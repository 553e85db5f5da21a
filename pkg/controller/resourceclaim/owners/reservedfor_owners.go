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

// Package owners has what kube-scheduler and the ResourceClaim controller have in common
// when they follow the owner references of a pod to the workload that a claim is reserved
// for (KEP-5194): which references are followed at all, why one leads nowhere, and a
// cache whose size no tenant decides.
//
// How an owner is looked up is not in here because it is different: the scheduler must
// never wait and only needs metadata, the controller blocks one of its workers, has
// informers, and needs the same object to tell whether it has finished.
//
// Owner references are written by whoever may create pods. Names, kinds and UIDs in there
// have no limit of their own, and nobody checks that the object exists.
package owners

import (
	"errors"
	"fmt"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
)

// What is longer in an owner reference cannot be the name, kind or UID of an object.
const (
	MaxNameLength       = 253
	MaxKindLength       = 63
	MaxUIDLength        = 128
	MaxAPIVersionLength = 253 + 1 + 63
)

// Reason says why it is not known what controls an owner.
type Reason string

const (
	// NotFound is for an object that does not exist, or not yet.
	NotFound Reason = "NotFound"
	// Replaced is for an object that exists with another UID.
	Replaced Reason = "Replaced"
	// UnknownKind is for a kind of which there can be no object in a namespace.
	UnknownKind Reason = "UnknownKind"
	// Forbidden is for an object that the component may not get.
	Forbidden Reason = "Forbidden"
	// TooLong is for an owner reference that no object has. It is not remembered.
	TooLong Reason = "TooLong"
)

// UnresolvedError is returned for an owner of which it is not known what controls it. That may
// change, except for references that are too long.
type UnresolvedError struct {
	Reason     Reason
	Kind, Name string
	// Err is the answer of the API server, nil if there is none worth mentioning.
	Err error
}

// Error implements error.
func (e *UnresolvedError) Error() string {
	if e.Reason == TooLong {
		return "an owner reference is too long to be one"
	}
	owner := fmt.Sprintf("owner %s %q ", e.Kind, e.Name)
	switch e.Reason {
	case NotFound:
		return owner + "does not exist"
	case Replaced:
		return owner + "exists with another UID"
	case UnknownKind:
		return owner + "is of a kind that is not served for namespaces"
	default:
		return owner + "may not be looked at: " + e.Err.Error()
	}
}

// Unwrap implements the interface for errors.Is and errors.As.
func (e *UnresolvedError) Unwrap() error { return e.Err }

// Unresolved returns the error for an owner.
func Unresolved(reason Reason, owner metav1.OwnerReference, err error) *UnresolvedError {
	if reason == TooLong {
		// Whoever keeps the error must not keep that.
		return &UnresolvedError{Reason: reason}
	}
	return &UnresolvedError{Reason: reason, Kind: owner.Kind, Name: owner.Name, Err: err}
}

// ReasonFor returns why it is not known what controls an owner, empty for any other error.
func ReasonFor(err error) Reason {
	var unresolved *UnresolvedError
	if errors.As(err, &unresolved) {
		return unresolved.Reason
	}
	return ""
}

// ReasonForGet returns the reason for an error with which the API server answered a request for
// an owner, empty if asking again might help.
func ReasonForGet(err error) Reason {
	switch {
	case apierrors.IsNotFound(err):
		return NotFound
	case apierrors.IsForbidden(err):
		return Forbidden
	default:
		return ""
	}
}

// Check returns an error for an owner reference that is not followed because of its length.
func Check(owner metav1.OwnerReference) error {
	if len(owner.Name) > MaxNameLength || len(owner.Kind) > MaxKindLength || len(owner.UID) > MaxUIDLength || len(owner.APIVersion) > MaxAPIVersionLength {
		return Unresolved(TooLong, owner, nil)
	}
	return nil
}

// Controller returns the controller of an owner that was retrieved, given what the object
// has. It is nil if it has none. The result may be kept: it has a limited size.
func Controller(uid types.UID, controller *metav1.OwnerReference, owner metav1.OwnerReference) (*metav1.OwnerReference, error) {
	if uid != owner.UID {
		return nil, Unresolved(Replaced, owner, nil)
	}
	if controller == nil {
		return nil, nil
	}
	if err := Check(*controller); err != nil {
		return nil, err
	}
	return controller, nil
}

// FindWorkloadUID is the same as [resourceclaim.FindWorkloadUID], except that it follows no owner
// reference that is too long. The UID in there is the result otherwise.
func FindWorkloadUID(pod metav1.Object, ref resourceapi.ResourceClaimWorkloadReference, controllerOf func(owner metav1.OwnerReference) (*metav1.OwnerReference, error)) (types.UID, error) {
	if controller := metav1.GetControllerOfNoCopy(pod); controller != nil {
		if err := Check(*controller); err != nil {
			return "", err
		}
	}
	return resourceclaim.FindWorkloadUID(pod, ref, func(owner metav1.OwnerReference) (*metav1.OwnerReference, error) {
		controller, err := controllerOf(owner)
		if err == nil && controller != nil {
			err = Check(*controller)
		}
		return controller, err
	})
}
