/** Flags of external-provisioner's early series: a set of manifests that still has them starts, with a word on what took their place. */
export const retiredFlags: Readonly<Record<string, { readonly takesValue: boolean; readonly advice: string }>> = {
  provisioner: { takesValue: true, advice: 'the driver’s own name is used; remove the flag' },
  'connection-timeout': { takesValue: true, advice: 'the driver is waited for without limit; remove the flag' },
  'leader-election-type': { takesValue: true, advice: 'a Lease is used; remove the flag' },
  'enable-leader-election': { takesValue: false, advice: 'use --leader-election' },
  'capacity-controller-deployment-mode': { takesValue: true, advice: 'use --enable-capacity' },
};
