// Line icons, drawn for a 20 by 20 field. They say nothing on their own: the button around them has a name.
import type { ComponentChildren } from 'preact';

function Icon({ children, size = 18 }: { children: ComponentChildren; size?: number }) {
  return (
    <svg class="icon" width={size} height={size} viewBox="0 0 20 20" aria-hidden="true" focusable="false">
      {children}
    </svg>
  );
}

export const PlusIcon = () => <Icon><path d="M10 4v12M4 10h12" /></Icon>;
export const SendIcon = () => <Icon><path d="M10 16V4.5M5 9.2 10 4.2l5 5" /></Icon>;
export const StopIcon = () => <Icon><rect x="5.5" y="5.5" width="9" height="9" rx="1.5" class="solid" /></Icon>;
export const MenuIcon = () => <Icon><path d="M3.5 6h13M3.5 10h13M3.5 14h13" /></Icon>;
export const CloseIcon = () => <Icon><path d="m5 5 10 10M15 5 5 15" /></Icon>;
export const TrashIcon = () => <Icon size={16}><path d="M4 5.5h12M8 5.5V4h4v1.5M5.5 5.5l.7 10.5h7.6l.7-10.5" /></Icon>;
export const EditIcon = () => <Icon size={16}><path d="m4 16 .8-3.4 8.4-8.4 2.6 2.6-8.4 8.4zM11.6 5.8l2.6 2.6" /></Icon>;
export const CopyIcon = () => <Icon size={16}><rect x="7" y="7" width="9" height="9" rx="1.8" /><path d="M13 7V5.5A1.5 1.5 0 0 0 11.5 4h-6A1.5 1.5 0 0 0 4 5.5v6A1.5 1.5 0 0 0 5.5 13H7" /></Icon>;
export const AgainIcon = () => <Icon size={16}><path d="M15.8 8.5A6 6 0 1 0 16 11M16 4.5v4h-4" /></Icon>;
export const TokensIcon = () => <Icon size={16}><rect x="3" y="5.5" width="5.5" height="3.5" rx="1" /><rect x="10.5" y="5.5" width="6.5" height="3.5" rx="1" /><rect x="3" y="11.5" width="8" height="3.5" rx="1" /><rect x="13" y="11.5" width="4" height="3.5" rx="1" /></Icon>;
export const SlidersIcon = () => <Icon><path d="M3.5 6.5H9M13 6.5h3.5M3.5 13.5H7M11 13.5h5.5" /><circle cx="11" cy="6.5" r="2" /><circle cx="9" cy="13.5" r="2" /></Icon>;
export const KeyIcon = () => <Icon><circle cx="7" cy="13" r="3" /><path d="m9.2 10.8 6.3-6.3M13 7l2.2 2.2" /></Icon>;
export const ThemeIcon = () => <Icon><circle cx="10" cy="10" r="6.2" /><path d="M10 3.8a6.2 6.2 0 0 1 0 12.4z" class="solid" /></Icon>;
export const DownIcon = () => <Icon><path d="M10 4v11.5M5 10.8l5 5 5-5" /></Icon>;
export const LeftIcon = () => <Icon size={16}><path d="M12 4.5 6.5 10l5.5 5.5" /></Icon>;
export const RightIcon = () => <Icon size={16}><path d="m8 4.5 5.5 5.5L8 15.5" /></Icon>;
export const ToolIcon = () => <Icon size={16}><path d="m7 6-4 4 4 4M13 6l4 4-4 4" /></Icon>;
export const FileIcon = () => <Icon size={16}><path d="M5 3.5h6l4 4v9H5zM11 3.5v4h4" /></Icon>;
export const ClipIcon = () => <Icon><path d="m15.5 9-5.8 5.8a3.2 3.2 0 0 1-4.5-4.5l6-6a2.1 2.1 0 0 1 3 3l-5.8 5.7a1 1 0 0 1-1.4-1.4L12.2 6.4" /></Icon>;
export const MoreIcon = () => <Icon size={16}><circle cx="4.5" cy="10" r="1" class="solid" /><circle cx="10" cy="10" r="1" class="solid" /><circle cx="15.5" cy="10" r="1" class="solid" /></Icon>;
export const InIcon = () => <Icon size={16}><path d="M10 3.5v9M6.5 9l3.5 3.5L13.5 9M4 16.5h12" /></Icon>;
export const OutIcon = () => <Icon size={16}><path d="M10 12.5v-9M6.5 7 10 3.5 13.5 7M4 16.5h12" /></Icon>;
export const ResetIcon = () => <Icon size={14}><path d="M5 8.5A5.5 5.5 0 1 1 4.5 12M5 4.5v4h4" /></Icon>;

export const Mark = () => (
  <svg class="mark" width="26" height="26" viewBox="0 0 32 32" aria-hidden="true" focusable="false">
    <circle cx="16" cy="14" r="6.6" />
    <path d="M16 4.6v18.8M6.6 14h18.8M9.4 7.4l13.2 13.2M22.6 7.4 9.4 20.6" />
    <path class="water" d="M4.5 27c2-1.7 3.8-1.7 5.8 0s3.8 1.7 5.7 0 3.8-1.7 5.8 0 3.8 1.7 5.7 0" />
  </svg>
);
