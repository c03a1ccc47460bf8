import {
  cloneJson,
  memberAt,
  objectAt,
  textAt,
  type Json,
  type JsonObject,
} from '../api/json-value.ts';
import { templatesOf } from '../api/kinds/apps.ts';
import type { KubeObject } from '../api/kube-object.ts';

/** The claim of a pod for one template: `<template>-<set>-<ordinal>`. */
export function claimFor(set: KubeObject, template: Json, ordinal: number): JsonObject {
  const { labels, annotations } = objectAt(template, 'metadata');
  return {
    metadata: {
      name: claimName(set, template, ordinal),
      labels: {
        ...objectAt({ labels }, 'labels'),
        ...objectAt(set, 'spec', 'selector', 'matchLabels'),
      },
      ...(annotations === undefined ? {} : { annotations: cloneJson(annotations) }),
    },
    spec: cloneJson(objectAt(template, 'spec')),
  };
}

/** The pod with an ordinal: the set's template with the pod's own claims as volumes. */
export function podFor(set: KubeObject, ordinal: number): JsonObject {
  const { kind, apiVersion, metadata } = set;
  const name = `${metadata.name}-${ordinal}`;
  const template = cloneJson(objectAt(set, 'spec', 'template'));
  const templates = templatesOf(set);
  const own = templates.map((each) => ({
    name: textAt(each, 'metadata', 'name'),
    persistentVolumeClaim: { claimName: claimName(set, each, ordinal) },
  }));
  const names = new Set(own.map((volume) => volume.name));
  const volumes = memberAt(template, 'spec', 'volumes');
  const others = Array.isArray(volumes)
    ? volumes.filter((each) => !names.has(textAt(each, 'name')))
    : [];
  const owner = { apiVersion, kind, name: metadata.name, uid: metadata.uid };
  return {
    metadata: {
      ...objectAt(template, 'metadata'),
      name,
      generateName: `${metadata.name}-`,
      labels: {
        ...objectAt(template, 'metadata', 'labels'),
        'apps.kubernetes.io/pod-index': String(ordinal),
        'statefulset.kubernetes.io/pod-name': name,
      },
      ownerReferences: [{ ...owner, controller: true, blockOwnerDeletion: true }],
    },
    spec: { ...objectAt(template, 'spec'), hostname: name, volumes: [...own, ...others] },
  };
}

function claimName(set: KubeObject, template: Json, ordinal: number): string {
  return `${textAt(template, 'metadata', 'name')}-${set.metadata.name}-${ordinal}`;
}
