import type { CodeName } from '#src/csi/status.ts';
import {
  all,
  bound,
  calls,
  event,
  refused,
  scenario,
  type Scenario,
  stays,
} from '../../../harness/differential/scenario.ts';
import { fails, failsOnce } from '../../../harness/differential/scripted-driver.ts';

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
      scenario(
        `create-${word}`,
        `reports ${code} from CreateVolume, and creates no volume (E-05)`,
        {
          answer: fails(code, `no: ${word}`),
          ends: code === 'InvalidArgument' ? refused : all(refused, calls('CreateVolume', 2)),
        },
      ),
      scenario(`create-${word}-once`, `creates the volume after ${code} from CreateVolume once`, {
        answer: failsOnce(code, `no: ${word}`),
        ends: code === 'InvalidArgument' ? refused : bound,
        ...(code === 'InvalidArgument' ? { afterwards: stays } : {}),
      }),
      scenario(`delete-${word}`, `deletes the volume after ${code} once, with an event`, {
        answer: failsOnce(code, `no: ${word}`, 'DeleteVolume'),
        afterwards: async (scene) => {
          await scene.deleteAll();
          await event('VolumeFailedDelete')(scene);
        },
      }),
    ];
  }),
  scenario('create-long-message', 'reports any message of the driver unchanged', {
    answer: fails('Internal', 'pool "a" is 100% full:\n\ttry %s, %d or $(date) — später'),
    ends: refused,
  }),
  scenario(
    'delete-always-fails',
    'keeps the PV while the driver can not delete the volume (P-37)',
    {
      answer: fails('Internal', 'busy', 'DeleteVolume'),
      afterwards: async (scene) => {
        await scene.remove(`${scene.claims}/data`);
        await event('VolumeFailedDelete', 'busy')(scene);
        await calls('DeleteVolume', 2)(scene);
      },
    },
  ),
];
