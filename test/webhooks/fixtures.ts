import type { HeaderValues } from '#src/webhooks/decode.ts';
import type { ChangeNotice } from '#src/webhooks/notices.ts';

/** Events about one claim and one volume, in the shapes in which senders send them. */

export const CLAIM = {
  apiVersion: 'v1',
  kind: 'PersistentVolumeClaim',
  metadata: { name: 'data-web-0', namespace: 'team-a', uid: '6d1f', resourceVersion: '17' },
  spec: { storageClassName: 'fast', resources: { requests: { storage: '1Gi' } } },
  status: { phase: 'Pending' },
};

export const VOLUME = {
  apiVersion: 'v1',
  kind: 'PersistentVolume',
  metadata: { name: 'pvc-6d1f', uid: '77aa', resourceVersion: '18' },
  status: { phase: 'Released' },
};

export const CLAIM_NOTICE: ChangeNotice = {
  resource: 'persistentvolumeclaims',
  namespace: 'team-a',
  name: 'data-web-0',
};

export const VOLUME_NOTICE: ChangeNotice = {
  resource: 'persistentvolumes',
  namespace: '',
  name: 'pvc-6d1f',
};

export const CLAIM_REFERENCE = {
  kind: 'PersistentVolumeClaim',
  namespace: 'team-a',
  name: 'data-web-0',
  apiVersion: 'v1',
};

/** A CloudEvent in structured mode, as Knative sends it in its reference mode. */
export const STRUCTURED = {
  specversion: '1.0',
  id: 'id-1',
  source: 'https://10.0.0.1:443',
  type: 'dev.knative.apiserver.ref.add',
  subject: '/apis/v1/namespaces/team-a/persistentvolumeclaims/data-web-0',
  datacontenttype: 'application/json',
  time: '2026-03-01T10:00:00.123456789Z',
  data: CLAIM_REFERENCE,
  apiversion: 'v1',
  kind: 'PersistentVolumeClaim',
  name: 'data-web-0',
  namespace: 'team-a',
};

/** Headers of a CloudEvent in binary mode. */
export const BINARY: HeaderValues = {
  'content-type': ['application/json'],
  'ce-specversion': ['1.0'],
  'ce-id': ['id-2'],
  'ce-source': ['https://10.0.0.1:443'],
  'ce-type': ['dev.knative.apiserver.resource.update'],
  'ce-apiversion': ['v1'],
  'ce-kind': ['PersistentVolumeClaim'],
  'ce-name': ['data-web-0'],
  'ce-namespace': ['team-a'],
};

export const JSON_HEADERS: HeaderValues = { 'content-type': ['application/json'] };
export const STRUCTURED_HEADERS: HeaderValues = {
  'content-type': ['application/cloudevents+json'],
};
export const BATCH_HEADERS: HeaderValues = {
  'content-type': ['application/cloudevents-batch+json; charset=UTF-8'],
};

/** Data of the resource event source of Argo Events. */
export const ARGO = {
  type: 'UPDATE',
  body: CLAIM,
  oldBody: null,
  group: '',
  version: 'v1',
  resource: 'persistentvolumeclaims',
};

export const WATCH_EVENT = { type: 'MODIFIED', object: CLAIM };

export const REVIEW = {
  kind: 'AdmissionReview',
  apiVersion: 'admission.k8s.io/v1',
  request: {
    uid: 'call-1',
    kind: { group: '', version: 'v1', kind: 'PersistentVolumeClaim' },
    resource: { group: '', version: 'v1', resource: 'persistentvolumeclaims' },
    name: 'data-web-0',
    namespace: 'team-a',
    operation: 'CREATE',
    object: CLAIM,
    oldObject: null,
    dryRun: false,
  },
};
