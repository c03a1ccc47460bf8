import { column, nameColumn } from '../columns.ts';
import { plainText, textAt } from '../json-value.ts';
import { kindOf } from '../resource.ts';
import { ageOf } from '../time.ts';

/** Events of the core group, which kubectl shows. */
export const events = kindOf('v1', ['Event', 'events', 'ev'], {
  createsOnUpdate: true,
  validate({ metadata, involvedObject }) {
    const namespace = textAt({ involvedObject }, 'involvedObject', 'namespace');
    const home = metadata.namespace ?? '';
    if (namespace === home || (namespace === '' && home === 'default')) return undefined;
    const why = `Invalid value: "${namespace}": does not match event.namespace`;
    return { field: 'involvedObject.namespace', why };
  },
  columns: [
    {
      name: 'Last Seen',
      type: 'string',
      cell: (o, nowMs) => ageOf(plainText(o['lastTimestamp'] ?? o['eventTime']), nowMs),
    },
    column('Type', 'type'),
    column('Reason', 'reason'),
    column(
      'Object',
      (o) =>
        `${textAt(o, 'involvedObject', 'kind').toLowerCase()}/${textAt(o, 'involvedObject', 'name')}`,
    ),
    column('Message', (o) => textAt(o, 'message').trim()),
    { ...nameColumn, priority: 1 },
  ],
});
