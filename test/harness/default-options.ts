import { DEFAULT_GATES } from '#src/volumes/flags.ts';

/** What jobs is told by its flags if none is given. */
export const DEFAULT_OPTIONS = {
  volumeNamePrefix: 'pvc',
  volumeNameUuidLength: -1,
  defaultFstype: '',
  extraCreateMetadata: false,
  controllerPublishReadonly: false,
  preventVolumeModeConversion: true,
  strictTopology: false,
  immediateTopology: true,
  gates: DEFAULT_GATES,
} as const;
