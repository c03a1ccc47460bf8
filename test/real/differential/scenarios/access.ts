import type { Fields } from '../../../conformance/connection.ts';
import { refused, scenario, type Scenario } from '../../../harness/differential/scenario.ts';

/** Access modes, volume modes and mount options. */
export const access: readonly Scenario[] = [
  made('acc-rwo', 'ReadWriteOnce (B-08, Q-05)', { accessModes: ['ReadWriteOnce'] }),
  made('acc-rwx', 'ReadWriteMany (B-05, Q-01)', { accessModes: ['ReadWriteMany'] }),
  made('acc-rox', 'ReadOnlyMany (B-06, Q-04)', { accessModes: ['ReadOnlyMany'] }),
  made('acc-rwop', 'ReadWriteOncePod (R-15)', { accessModes: ['ReadWriteOncePod'] }),
  made('acc-rox-rwo', 'ReadOnlyMany and ReadWriteOnce in that order (B-11)', {
    accessModes: ['ReadOnlyMany', 'ReadWriteOnce'],
  }),
  made('acc-three', 'three modes', {
    accessModes: ['ReadWriteOnce', 'ReadWriteMany', 'ReadOnlyMany'],
  }),
  made('acc-block', 'Block (B-16)', { volumeMode: 'Block' }),
  made('acc-filesystem', 'explicit Filesystem (B-15)', { volumeMode: 'Filesystem' }),
  made(
    'acc-block-fstype',
    'Block with an fstype',
    { volumeMode: 'Block' },
    { parameters: { fstype: 'xfs' }, mountOptions: ['noatime'] },
  ),
  made('acc-mount', 'mount options (B-23)', {}, { mountOptions: ['foo=bar', 'baz=qux', 'ro'] }),
  scenario('acc-selector', 'refuses a selector (B-18)', {
    claim: { spec: { selector: { matchLabels: { a: 'b' } } } },
    ends: refused,
  }),
];

function made(name: string, what: string, spec: Fields, cls: Fields = {}): Scenario {
  return scenario(name, `creates a volume: ${what}`, { class: cls, claim: { spec } });
}
