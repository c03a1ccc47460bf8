import { nameColumn, textColumn } from '../columns.ts';
import { invalidValue } from '../field-error.ts';
import { memberAt, objectAt, textAt, type JsonObject } from '../json-value.ts';
import type { KubeObject } from '../kube-object.ts';
import type { Resource } from '../resource.ts';
import { schemaOf } from '../schema/schemas.ts';
import { ageOf } from '../time.ts';

const involved = (object: KubeObject, name: string) => textAt(object, 'involvedObject', name);

/** The sender: the old field, or else the new one. */
const sender = (event: KubeObject) =>
  textAt(event, 'source', 'component') || textAt(event, 'reportingComponent');

function lastSeen(event: KubeObject): string | undefined {
  const found =
    memberAt(event, 'series', 'lastObservedTime') ??
    event['lastTimestamp'] ??
    event['eventTime'] ??
    event['firstTimestamp'];
  return typeof found === 'string' ? found : undefined;
}

function firstSeen(event: KubeObject): string | undefined {
  const found = event['firstTimestamp'] ?? event['eventTime'];
  return typeof found === 'string' ? found : undefined;
}

const EVENT_COLUMNS: Resource['columns'] = [
  { name: 'Last Seen', type: 'string', cell: (o, nowMs) => ageOf(lastSeen(o), nowMs) },
  textColumn('Type', (o) => textAt(o, 'type')),
  textColumn('Reason', (o) => textAt(o, 'reason')),
  textColumn('Object', (o) => `${involved(o, 'kind').toLowerCase()}/${involved(o, 'name')}`),
  textColumn('Subobject', (o) => involved(o, 'fieldPath'), 1),
  textColumn(
    'Source',
    (o) => [sender(o), textAt(o, 'source', 'host')].filter((word) => word !== '').join(', '),
    1,
  ),
  textColumn('Message', (o) => textAt(o, 'message').trim()),
  {
    name: 'First Seen',
    type: 'string',
    priority: 1,
    cell: (o, nowMs) => ageOf(firstSeen(o), nowMs),
  },
  {
    name: 'Count',
    type: 'string',
    priority: 1,
    cell: (o) => memberAt(o, 'series', 'count') ?? o['count'] ?? 1,
  },
  { ...nameColumn, priority: 1 },
];

/** Sets members that are written even when they are empty. */
function setEmptyMembers(event: KubeObject): void {
  for (const name of ['reportingComponent', 'reportingInstance']) event[name] ??= '';
}

/** Events of the core group, which kubectl shows. */
export const events: Resource = {
  group: '',
  version: 'v1',
  plural: 'events',
  singular: 'event',
  kind: 'Event',
  shortNames: ['ev'],
  namespaced: true,
  struct: schemaOf('Event'),
  createsOnUpdate: true,
  fieldLabels: {
    'involvedObject.kind': (o) => involved(o, 'kind'),
    'involvedObject.namespace': (o) => involved(o, 'namespace'),
    'involvedObject.name': (o) => involved(o, 'name'),
    'involvedObject.uid': (o) => involved(o, 'uid'),
    'involvedObject.apiVersion': (o) => involved(o, 'apiVersion'),
    'involvedObject.resourceVersion': (o) => involved(o, 'resourceVersion'),
    'involvedObject.fieldPath': (o) => involved(o, 'fieldPath'),
    reason: (o) => textAt(o, 'reason'),
    reportingComponent: sender,
    source: sender,
    type: (o) => textAt(o, 'type'),
  },
  applyDefaults: setEmptyMembers,
  validate(object) {
    const namespace = involved(object, 'namespace');
    const home = object.metadata.namespace ?? '';
    if (namespace === home || (namespace === '' && home === 'default')) return [];
    return [invalidValue('involvedObject.namespace', namespace, 'does not match event.namespace')];
  },
  columns: EVENT_COLUMNS,
};

function toStored(event: JsonObject): JsonObject {
  const {
    regarding,
    note,
    reportingController,
    deprecatedSource,
    deprecatedFirstTimestamp,
    deprecatedLastTimestamp,
    deprecatedCount,
    ...same
  } = event;
  return {
    ...same,
    apiVersion: 'v1',
    involvedObject: regarding ?? {},
    message: note,
    source: deprecatedSource ?? {},
    firstTimestamp: deprecatedFirstTimestamp,
    lastTimestamp: deprecatedLastTimestamp,
    count: deprecatedCount,
    reportingComponent: reportingController,
  };
}

function fromStored(event: KubeObject): KubeObject {
  const {
    involvedObject,
    message,
    source,
    firstTimestamp,
    lastTimestamp,
    count,
    reportingComponent,
    ...same
  } = event;
  const text = (value: unknown) => (value === '' ? undefined : (value as string | undefined));
  return {
    ...same,
    apiVersion: 'events.k8s.io/v1',
    reportingController: text(reportingComponent),
    reportingInstance: text(same['reportingInstance']),
    regarding: objectAt({ involvedObject }, 'involvedObject'),
    note: message,
    deprecatedSource: source ?? {},
    deprecatedFirstTimestamp: firstTimestamp ?? null,
    deprecatedLastTimestamp: lastTimestamp ?? null,
    deprecatedCount: count,
  };
}

/** The same events under events.k8s.io, which newer clients write. */
export const newEvents: Resource = {
  ...events,
  group: 'events.k8s.io',
  struct: schemaOf('EventsEvent'),
  fieldLabels: {
    'regarding.kind': (o) => involved(o, 'kind'),
    'regarding.namespace': (o) => involved(o, 'namespace'),
    'regarding.name': (o) => involved(o, 'name'),
    'regarding.uid': (o) => involved(o, 'uid'),
    reason: (o) => textAt(o, 'reason'),
    reportingController: sender,
    type: (o) => textAt(o, 'type'),
  },
  view: { storedAs: events, toStored, fromStored },
};
