import type { CodeName } from '#src/csi/status.ts';
import {
  all,
  bound,
  calls,
  event,
  refused,
  type Scenario,
  stays,
} from '../../../harness/differential/scenario.ts';
import { fails, status } from '../../../harness/differential/scripted-driver.ts';

const CODES: readonly CodeName[] = [
  'Canceled',
  'Unknown',
  'InvalidArgument',
  'DeadlineExceeded',
  'NotFound',
  'AlreadyExists',
  'PermissionDenied',
  'ResourceExhausted',
  'FailedPrecondition',
  'Aborted',
  'OutOfRange',
  'Unimplemented',
  'Internal',
  'Unavailable',
  'DataLoss',
  'Unauthenticated',
];

/** Every status that CreateVolume and DeleteVolume may end with. */
export const codes: readonly Scenario[] = [
  ...CODES.flatMap((code): readonly Scenario[] => {
    const word = code.toLowerCase();
    return [
      {
        name: `create-${word}`,
        title: `reports that CreateVolume ended with ${code}, and creates no volume (E-05)`,
        answer: fails(code, `no: ${word}`),
        ends: code === 'InvalidArgument' ? refused : all(refused, calls('CreateVolume', 2)),
      },
      {
        name: `create-${word}-once`,
        title: `creates the volume after CreateVolume ended with ${code} once`,
        answer: (call) => {
          if (call.method === 'CreateVolume' && call.count === 1) throw status(code, `no: ${word}`);
        },
        ends: code === 'InvalidArgument' ? refused : bound,
        ...(code === 'InvalidArgument' ? { afterwards: stays } : {}),
      },
      {
        name: `delete-${word}`,
        title: `deletes the volume after DeleteVolume ended with ${code} once, with an event`,
        answer: (call) => {
          if (call.method === 'DeleteVolume' && call.count === 1) throw status(code, `no: ${word}`);
        },
        ends: bound,
        afterwards: async (scene) => {
          await scene.deleteAll();
          await event('VolumeFailedDelete')(scene);
        },
      },
    ];
  }),
  {
    name: 'create-long-message',
    title: 'reports any message of the driver unchanged',
    answer: fails('Internal', 'pool "a" is 100% full:\n\ttry %s, %d or $(date) — später'),
    ends: refused,
  },
  {
    name: 'create-no-message',
    title: 'reports an error without a message',
    answer: fails('Internal', ''),
    ends: refused,
  },
  {
    name: 'delete-always-fails',
    title: 'keeps the PersistentVolume while the driver can not delete the volume (P-37)',
    answer: fails('Internal', 'busy', 'DeleteVolume'),
    ends: bound,
    afterwards: async (scene) => {
      await scene.remove(`${scene.claims}/data`);
      await event('VolumeFailedDelete', 'busy')(scene);
      await calls('DeleteVolume', 2)(scene);
    },
  },
];
