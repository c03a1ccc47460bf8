import { main } from '#src/jobs/main.ts';
import { VolumeRecords } from '#src/records/volume-record.ts';

/* The jobs process without volume records: every record can be opened, and nothing is stored. The
 * chaos command must find leaks with it; if it does not, the command itself is broken. */

const withoutRecords: Partial<Record<keyof VolumeRecords, unknown>> = {
  openCreate: () => Promise.resolve({ kind: 'opened' }),
  openExisting: () => Promise.resolve({ kind: 'none' }),
  openDelete: () => Promise.resolve({ kind: 'opened' }),
  closeStored: () => Promise.resolve(),
  closeRefused: () => Promise.resolve('removed'),
  leaveAmbiguous: () => Promise.resolve(''),
  leaveAnswered: () => Promise.resolve(),
  revert: () => Promise.resolve(),
  closeGone: () => Promise.resolve(),
  leaveDeleting: () => Promise.resolve(''),
  endDeletion: () => Promise.resolve('none'),
  isOpen: () => Promise.resolve(false),
  rewriteLostRecords: () => Promise.resolve([]),
};
Object.assign(VolumeRecords.prototype, withoutRecords);
await main({ host: process, argv: process.argv.slice(2), known: {}, retired: {} });
